//! `#[derive(Key)]` for structs, and `#[derive(TypeName)]`: see `quenchdb::Key` and
//! `quenchdb::TypeName`.

mod type_name;

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::spanned::Spanned;
use syn::{Data, DeriveInput, Error, Fields, Index, Member, Result, parse_macro_input};

/// Makes a struct of keys a key of typed tables. Its keys are ordered by the first field, then by
/// the second, and so on, as `#[derive(Ord)]` orders the struct. Its name in databases is that of
/// the struct, or the one in `#[type_name("...")]`, with the names and types of the fields.
#[proc_macro_derive(Key, attributes(type_name))]
pub fn derive_key(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    expand(&input).unwrap_or_else(Error::into_compile_error).into()
}

/// Gives a type the name under which databases know it: that of the type, or the one in
/// `#[type_name("...")]`, with its fields or variants as they are written.
#[proc_macro_derive(TypeName, attributes(type_name))]
pub fn derive_type_name(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    type_name::expand(&input).unwrap_or_else(Error::into_compile_error).into()
}

fn expand(input: &DeriveInput) -> Result<TokenStream> {
    let Data::Struct(data) = &input.data else {
        return Err(Error::new(input.span(), "only a struct can derive `Key`"));
    };
    if !input.generics.params.is_empty() {
        return Err(Error::new(input.generics.span(), "a struct with parameters cannot derive `Key`"));
    }
    let members: Vec<Member> = match &data.fields {
        Fields::Named(fields) => {
            fields.named.iter().flat_map(|field| field.ident.clone()).map(Member::Named).collect()
        }
        Fields::Unnamed(fields) => {
            (0..fields.unnamed.len()).map(|at| Member::Unnamed(Index::from(at))).collect()
        }
        Fields::Unit => Vec::new(),
    };
    let types: Vec<_> = data.fields.iter().map(|field| &field.ty).collect();
    let (Some((last, parts)), Some((last_type, part_types))) = (members.split_last(), types.split_last())
    else {
        return Err(Error::new(input.span(), "a key has at least one field"));
    };
    let name = &input.ident;
    let variables: Vec<_> = (0..members.len()).map(|at| format_ident!("field_{at}")).collect();
    let (last_variable, part_variables) = (&variables[parts.len()], &variables[..parts.len()]);
    let type_name = type_name::of_key(input, &data.fields)?;
    Ok(quote! {
        #type_name

        impl ::quenchdb::AsKey<#name> for #name {
            fn encode_part(&self, out: &mut ::std::vec::Vec<u8>) {
                #(::quenchdb::AsKey::<#types>::encode_part(&self.#members, out);)*
            }

            fn encode_last(&self, out: &mut ::std::vec::Vec<u8>) {
                #(::quenchdb::AsKey::<#part_types>::encode_part(&self.#parts, out);)*
                ::quenchdb::AsKey::<#last_type>::encode_last(&self.#last, out);
            }
        }

        impl ::quenchdb::Key for #name {
            fn decode_part(bytes: &mut &[u8]) -> ::std::option::Option<Self> {
                #(let #variables = <#types as ::quenchdb::Key>::decode_part(bytes)?;)*
                ::std::option::Option::Some(#name { #(#members: #variables,)* })
            }

            fn decode_last(bytes: &mut &[u8]) -> ::std::option::Option<Self> {
                #(let #part_variables = <#part_types as ::quenchdb::Key>::decode_part(bytes)?;)*
                let #last_variable = <#last_type as ::quenchdb::Key>::decode_last(bytes)?;
                ::std::option::Option::Some(#name { #(#members: #variables,)* })
            }
        }
    })
}

#[cfg(test)]
mod tests;
