//! The std shell around `kinglet-core`: files, threads, terminal, command line.
