"""The matrix as a static page: `measurements` gathers what was recorded, `layout` puts predictions beside it,
`site` makes the files. Text that comes from records is untrusted throughout."""
