"""Forms and versions of documents: content types, conversions, protobuf."""
