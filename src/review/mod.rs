//! Labels looked at again: what another label set would change ([`relabel`]), how two labellings compare
//! ([`compare`]), what people say ([`gold`]), and the threshold and temperature that fit it ([`calibrate`]).

pub mod calibrate;
pub mod compare;
pub mod gold;
pub mod relabel;
