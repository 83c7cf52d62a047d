//! What the whole-path tests share: the real binaries, a folder of their own, a log of their own.

pub mod workshop;
