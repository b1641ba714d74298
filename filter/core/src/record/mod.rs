//! stub: record
