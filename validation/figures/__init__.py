"""The figures of the course (docs/learn/img), one function for each; `validation/course_figures.py` writes them."""
