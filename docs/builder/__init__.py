"""The site: gathers the pages, generates the reference, builds with Zensical and checks every link."""
