"""The built-in engine: one worker a GPU, a crew over all of them, a watch beside them."""
