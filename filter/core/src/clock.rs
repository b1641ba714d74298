//! stub: clock
