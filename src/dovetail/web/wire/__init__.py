"""The form of requests and responses: parameters, pages, versions, tables, and their description for programs."""
