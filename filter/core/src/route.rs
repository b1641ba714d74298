//! stub: route
