"""Runs the phases of a method over a stream: devices, progress, checkpoints, evaluation."""
