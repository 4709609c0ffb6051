//! Renders what is stored: the report, and the server's web pages and JSON API.
//!
//! - [`report`] aggregates stored posts and labels and renders them as one HTML page or as SVG charts.
//! - [`serve`] is the web server: pages, a JSON API, a SQL box and the review page.
//! - [`display`] contains the style sheets and formats numbers and untrusted text for all of these.
//! - [`listener`] accepts TCP connections, with limits and a timeout.

pub mod display;
pub mod listener;
pub mod report;
pub mod serve;
