// The names that `chat_card/__init__.py` puts in front of the card's own scripts.

declare const SENTENCES: Record<string, string>;
declare function makeTranslator(sentences: Record<string, string>): (text: string) => string;
