"""The command line: one file a subcommand, the options in one table. Imports torch only to run a model."""
