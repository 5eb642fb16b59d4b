"""What people read: terminal and Markdown. Everything here renders values; nothing here decides."""
