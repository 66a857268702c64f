"""What can be set of each method, and where its code is: one file per method, none imports torch.

So the command line, `plan` and every refusal of an option start at once. Files without a `declare`
hold what several methods share; they are called like the frames in `methods/`.
"""
