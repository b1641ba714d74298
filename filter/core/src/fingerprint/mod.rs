//! stub: fingerprint
