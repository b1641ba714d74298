//! stub: trusted
