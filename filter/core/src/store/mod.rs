//! stub: store
