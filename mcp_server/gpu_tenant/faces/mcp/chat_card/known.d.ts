// What stands above the card's own scripts: `chat_card/__init__.py` puts it there.

declare const SENTENCES: Record<string, string>;
declare function makeTranslator(sentences: Record<string, string>): (text: string) => string;
