"""Reference motions: their files, how they are made from tables of poses, and one that is made here."""
