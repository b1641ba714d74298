//! stub: audit
