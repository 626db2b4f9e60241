"""The parts of `keras_multiworker`: one module for each place in Keras that it mends."""
