"""The pages that people use: views, the shapes that their templates take, and who is signed in."""
