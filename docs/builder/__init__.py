"""The site: gathers the pages of the repository, generates the reference, builds with Zensical and checks every link."""
