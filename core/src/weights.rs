//! Borrowed views of the weights.
