//! Renders what is stored: the report, and the server's web pages.
//!
//! - [`report`] aggregates stored posts and labels and renders them as one HTML page or as SVG charts.
//! - [`serve`] is the web server: the report, lists of posts, posts and the review page.
//! - [`display`] contains the style sheets and formats numbers and untrusted text for all of these.
//! - [`listener`] serves HTTP, with limits and timeouts.

pub mod display;
pub mod listener;
pub mod report;
pub mod serve;
