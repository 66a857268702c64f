"""The Hash paper by name: tables, figures and claims as data, their runs and results."""
