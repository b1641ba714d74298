//! stub: envelope
