"""Fields of documents beside title and text: values, columns on disk, filters and counts."""
