//! Model dimensions, read from GGUF metadata and checked once.
