"""The site's builder: gather the pages, generate the reference, build with Zensical and check every link."""
