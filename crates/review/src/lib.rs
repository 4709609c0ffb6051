//! Labels looked at again: what is known of texts without inference ([`rescore`]), how two labellings compare ([`compare`]),
//! which posts people are asked about ([`sampling`], here or as [`label_studio`] elsewhere), what they say ([`gold`]), how good labels
//! are next to that ([`evaluate`], of posts that [`join`] joins), the threshold and temperature that fit it
//! ([`calibrate`]), what posts without a label are about ([`suggest`]), and whether a mix of labels changed ([`drift`]).

#![expect(
    missing_docs,
    reason = "the program is its only user, and most names say all"
)]

pub mod calibrate;
pub mod compare;
pub mod drift;
pub mod evaluate;
pub mod fit;
pub mod gold;
pub mod hypotheses;
pub mod join;
pub mod label_studio;
pub mod rescore;
pub mod sampling;
pub mod suggest;
