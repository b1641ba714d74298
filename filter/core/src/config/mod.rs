//! stub: config
