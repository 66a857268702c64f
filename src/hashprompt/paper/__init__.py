"""The paper by name: its tables, figures and claims as data, the runs behind them, what came out."""
