"""The paper by name: tables, figures and claims as data, their runs, and what came out."""
