"""Pictures: data, digest, drawing."""
