//! stub: metrics
