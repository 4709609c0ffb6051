//! Looking at labelled data: questions in SQL, over the views that the migrations make.

pub mod sql;
