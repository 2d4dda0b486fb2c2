"""The built-in sweep of collectives: one rank a GPU, a crew over all of them, NCCL itself behind one small wrapper."""
