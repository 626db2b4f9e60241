"""The toolchain of the lessons: one source each, everything else derived from it and checked.

    sources  reads `notebooks/source/NN_name.py` and makes the notebook that it stands for
    rules    what every lesson keeps, one small function each
    lint     checks a lesson against the rules, naming cell and line
    execute  runs one notebook in a clean kernel, within a time limit
    build    writes `notebooks/NN_name.ipynb` with outputs, and finds drift
    run      runs many lessons and says how each ended
    solve    puts the reference answers into the answer cells

Nothing here imports TensorFlow: only the kernels that it starts do.
"""
