//! stub: key
