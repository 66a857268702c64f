"""The API, by what a person does: ask, teach, look back, edit, sort out unsure photos."""
