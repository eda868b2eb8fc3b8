"""Policy files: YAML and TOML, in layers, with their problems and their lines."""
