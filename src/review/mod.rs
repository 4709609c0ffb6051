//! Labels looked at again: what another label set would change ([`relabel`]), how two labellings compare
//! ([`compare`]), which posts people are asked about ([`ask`], here or as [`tasks`] elsewhere), what they say ([`gold`]),
//! how good labels are beside that ([`evaluate`], of posts that [`held`] puts side by side), the threshold and temperature
//! that fit it ([`calibrate`]), what a model would say before it labels anything ([`trial`]), and what posts without a label
//! are about ([`suggest`]).

pub mod ask;
pub mod calibrate;
pub mod compare;
pub mod evaluate;
pub mod gold;
pub mod held;
pub mod relabel;
pub mod suggest;
pub mod tasks;
pub mod trial;
pub mod unused;
