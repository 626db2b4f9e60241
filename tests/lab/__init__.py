"""The learner's seat: JupyterLab in a real browser."""
