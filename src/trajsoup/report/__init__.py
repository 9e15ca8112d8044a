"""What people look at: tables, figures, one self-contained page, and the same page while a study runs."""
