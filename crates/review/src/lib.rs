//! Labels looked at again: what is known of texts without inference ([`known`]), how two labellings compare ([`compare`]),
//! which posts people are asked about ([`ask`], here or as [`tasks`] elsewhere), what they say ([`gold`]), how good labels
//! are next to that ([`evaluate`], of posts that [`held`] joins), the threshold and temperature that fit it
//! ([`calibrate`]), what posts without a label are about ([`suggest`]), and whether a mix of labels changed ([`drift`]).

#![expect(
    missing_docs,
    reason = "the program is its only user, and most names say all"
)]

pub mod ask;
pub mod calibrate;
pub mod compare;
pub mod drift;
pub mod evaluate;
pub mod fit;
pub mod gold;
pub mod held;
pub mod known;
pub mod suggest;
pub mod tasks;
pub mod unused;
