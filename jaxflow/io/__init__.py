"""How does jaxflow read and write files? Run directories, named arrays, sample tables."""
