//! Parquet files of binary values.

use std::sync::Arc;

use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArrayType;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

/// Returns a Parquet file with a column for each field of the schema, and a value for each row.
pub fn parquet(schema: &str, columns: &[&[&[u8]]]) -> Vec<u8> {
    parquet_with(WriterProperties::builder().build(), schema, columns)
}

/// Returns such a file with these properties.
pub fn parquet_with(properties: WriterProperties, schema: &str, columns: &[&[&[u8]]]) -> Vec<u8> {
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let mut bytes = Vec::new();
    let mut file = SerializedFileWriter::new(&mut bytes, schema, Arc::new(properties)).unwrap();
    let mut group = file.next_row_group().unwrap();
    for column_values in columns {
        let mut column = group.next_column().unwrap().unwrap();
        let values = column_values.iter().map(|value| value.to_vec());
        if let ColumnWriter::FixedLenByteArrayColumnWriter(typed) = column.untyped() {
            let values: Vec<_> = values.map(Into::into).collect();
            typed.write_batch(&values, None, None).unwrap();
        } else {
            let values: Vec<_> = values.map(Into::into).collect();
            let typed = column.typed::<ByteArrayType>();
            typed.write_batch(&values, None, None).unwrap();
        }
        column.close().unwrap();
    }
    group.close().unwrap();
    file.close().unwrap();
    bytes
}
